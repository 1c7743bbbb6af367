from ctxguard.formats.gemini import GoogleAdapter as GoogleAdapter
from ctxguard_google.clients import guarded as guarded
from ctxguard_google.requests import astabilize_request as astabilize_request
from ctxguard_google.requests import recall_tool as recall_tool
from ctxguard_google.requests import stabilize_messages as stabilize_messages
from ctxguard_google.requests import stabilize_request as stabilize_request
