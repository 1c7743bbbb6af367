"""ctxguard for Amazon Bedrock's Converse API: messages as the dicts of boto3, which is not required."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
