"""Find personal data, hide it, give it back, and prove that it is gone.

`STANDARD.find(text)` says where it stands; `Masker` hides it (redacted, pseudonymized, hashed, in part); `Vault` keeps
what pseudonyms stand for; `MaskSession.unmask` gives it back; `validate_no_pii` checks on a path of its own.
"""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
