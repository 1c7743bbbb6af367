"""ctxguard for Amazon Bedrock's Converse API: messages as dicts, as in boto3. The package boto3 is not required."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
