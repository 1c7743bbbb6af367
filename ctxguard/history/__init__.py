"""The model of a conversation: pairs, exchanges, turns, mandatory messages, and who really wrote a message."""

from ctxguard.history.conversation import AUTHORITY, MESSAGES, ExchangeSpan, History
from ctxguard.history.conversation import TASK_SHARE as TASK_SHARE
from ctxguard.history.overflows import Overflow as Overflow
from ctxguard.history.overflows import Overflows as Overflows
from ctxguard.history.pairing import Exchange, Pairing, exchanges, pair
from ctxguard.history.pairing import holds_all_results as holds_all_results
from ctxguard.history.pairing import whole_until as whole_until
from ctxguard.history.records import (
    CHECKPOINT,
    RECALLED,
    SUMMARY,
    TRAIL,
    Record,
    is_asked,
    is_synthetic,
    record_title,
    write_record,
)
from ctxguard.history.records import JOINT as JOINT
from ctxguard.history.records import is_record as is_record
from ctxguard.history.records import leading_records as leading_records
from ctxguard.history.records import pieces_of as pieces_of
from ctxguard.history.records import records_in as records_in

__all__ = [
    "AUTHORITY",
    "CHECKPOINT",
    "MESSAGES",
    "RECALLED",
    "SUMMARY",
    "TRAIL",
    "Exchange",
    "ExchangeSpan",
    "History",
    "Pairing",
    "Record",
    "exchanges",
    "is_asked",
    "is_synthetic",
    "pair",
    "record_title",
    "write_record",
]
