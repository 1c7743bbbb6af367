from ctxguard.formats.anthropic import AnthropicAdapter as AnthropicAdapter
from ctxguard.wire.clients import guarded as guarded
from ctxguard_anthropic.requests import astabilize_request as astabilize_request
from ctxguard_anthropic.requests import recall_tool as recall_tool
from ctxguard_anthropic.requests import stabilize_messages as stabilize_messages
from ctxguard_anthropic.requests import stabilize_request as stabilize_request
