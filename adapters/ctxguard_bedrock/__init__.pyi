from ctxguard.formats.converse import BedrockAdapter as BedrockAdapter
from ctxguard_bedrock.clients import guarded as guarded
from ctxguard_bedrock.requests import astabilize_request as astabilize_request
from ctxguard_bedrock.requests import recall_tool as recall_tool
from ctxguard_bedrock.requests import stabilize_messages as stabilize_messages
from ctxguard_bedrock.requests import stabilize_request as stabilize_request
