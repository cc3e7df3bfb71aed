"""All messages to users about decisions, one function per message."""
