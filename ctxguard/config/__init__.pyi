from ctxguard.config.loading import get_truncation_config as get_truncation_config
from ctxguard.config.loading import load_context_config as load_context_config
from ctxguard.config.models import CompactionConfig as CompactionConfig
from ctxguard.config.models import CompressionLevel as CompressionLevel
from ctxguard.config.models import ContextConfig as ContextConfig
from ctxguard.config.models import PiiConfig as PiiConfig
from ctxguard.config.models import StabilizerConfig as StabilizerConfig
from ctxguard.config.models import TruncationConfig as TruncationConfig
