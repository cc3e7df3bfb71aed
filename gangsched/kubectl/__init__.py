"""`kubectl gangsched`: what users and operators ask a cluster about its gangs, under their own rights.

Invariant: it reads, but for the reviews that `plan` and `doctor` create, which store nothing. What it cannot know it
says. No text of the cluster reaches a terminal unchecked (`terminal.clean`). What a command does not need is not
imported, so that it answers within a second.
"""
