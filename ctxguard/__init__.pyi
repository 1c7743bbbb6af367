from ctxguard.adapting.adapter import guard as guard
from ctxguard.artifacts import Artifact as Artifact
from ctxguard.artifacts import Kind as Kind
from ctxguard.artifacts import Lifetime as Lifetime
from ctxguard.artifacts import Part as Part
from ctxguard.artifacts import ToolCall as ToolCall
from ctxguard.compat.pattern import stabilize_context as stabilize_context
from ctxguard.compat.truncate import estimate_tokens as estimate_tokens
from ctxguard.compat.truncate import truncate_messages as truncate_messages
from ctxguard.config import ContextConfig as ContextConfig
from ctxguard.config import load_context_config as load_context_config
from ctxguard.draft import Draft as Draft
from ctxguard.draft import Stage as Stage
from ctxguard.errors import BudgetExceededError as BudgetExceededError
from ctxguard.errors import CtxguardError as CtxguardError
from ctxguard.history import Exchange as Exchange
from ctxguard.history import exchanges as exchanges
from ctxguard.pii import mask_pii as mask_pii
from ctxguard.pii import validate_no_pii as validate_no_pii
from ctxguard.pii import warm as warm
from ctxguard.report import Report as Report
from ctxguard.stabilizer import Stabilized as Stabilized
from ctxguard.stabilizer import Stabilizer as Stabilizer
from ctxguard.tokens import TokenCounter as TokenCounter

__version__: str
