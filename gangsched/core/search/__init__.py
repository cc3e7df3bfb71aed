"""The search for a placement: totals of all domains first, then an exact packing of each domain
that totals do not rule out.
"""
