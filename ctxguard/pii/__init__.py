"""Find personal data, mask it, restore it, and check that none is left.

`STANDARD.find(text)` returns the places; `Masker` masks (redacts, pseudonymizes, hashes, or shows in part); `Vault`
stores the values of pseudonyms; `MaskSession.unmask` restores them; `validate_no_pii` checks independently.
"""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
