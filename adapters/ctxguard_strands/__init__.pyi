from ctxguard_strands.guard import ContextGuard as ContextGuard
from ctxguard_strands.guard import recall_tool as recall_tool
from ctxguard_strands.messages import StrandsAdapter as StrandsAdapter
