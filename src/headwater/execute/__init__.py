"""Runs groups on devices and reports; decides nothing."""

from headwater.execute.inline import InlineExecutor

__all__ = ["InlineExecutor"]
