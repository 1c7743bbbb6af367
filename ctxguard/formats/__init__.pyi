from ctxguard.formats.blocks import BlockFormat as BlockFormat
from ctxguard.formats.chat import MessageFormat as MessageFormat
from ctxguard.formats.format import Format as Format
