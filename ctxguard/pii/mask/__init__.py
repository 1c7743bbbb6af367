"""Mask findings, and restore their values."""
