"""Histories of batches as files: written, read again, moved off the server, and brought back.

history_files.py   files with a history: plain or compressed, and `-`
exporting.py       `evalbus export`;  replaying.py: `evalbus replay`;  importing.py: `evalbus import`
archiving.py       a whole history, read back;  pruning.py: `evalbus prune`;  keeping.py: what it leaves
archivist.py       a history that leaves the server while its batch runs;  following.py: the archivist at work
segments.py        the files of such an archive; segment_writing.py: one of them;  archive_place.py: their directory
standing.py        how such an archive stands beside its server
"""
