"""Gangs as API objects: versions, watches, and the tables that kubectl prints."""
