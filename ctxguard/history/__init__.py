"""The one model of a conversation: pairs, exchanges, turns, what must stay, and who really wrote a message."""

from ctxguard.history.conversation import AUTHORITY, MESSAGES, ExchangeSpan, History, task_in
from ctxguard.history.overflows import Overflow, Overflows
from ctxguard.history.pairing import Exchange, Pairing, exchanges, pair, whole_until
from ctxguard.history.records import (
    CHECKPOINT,
    RECALLED,
    SUMMARY,
    TRAIL,
    Record,
    is_asked,
    is_record,
    is_synthetic,
    leading_records,
    record_title,
    records_in,
    write_record,
)

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
    "Overflow",
    "Overflows",
    "Pairing",
    "Record",
    "exchanges",
    "is_asked",
    "is_record",
    "is_synthetic",
    "leading_records",
    "pair",
    "record_title",
    "records_in",
    "task_in",
    "whole_until",
    "write_record",
]
