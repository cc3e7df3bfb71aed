"""Nouns: what the scheduler talks about.

Law: everything here is a value: frozen, slotted, comparable, without behaviour beyond reading itself. Nothing here
imports another package of gangsched, and nothing here knows the clock, the network or asyncio.
"""
