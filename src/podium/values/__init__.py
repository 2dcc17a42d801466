"""Define the frozen data types that are stored, sent and returned, and parse and format text.

These modules import nothing else from Podium except its version. Most modules with msgspec types do not postpone their
annotations (`from __future__ import annotations`): msgspec would have to compile each annotation from its text, which
takes about a tenth of the run time of a short command.
"""
