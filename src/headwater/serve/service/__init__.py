"""The service: a queue of studies of many users on the devices of this machine, behind a REST interface.

The service runs no code of theirs: each study is run by a process of its own, with a steward beside it.
"""
