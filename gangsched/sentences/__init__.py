"""All sentences to users about decisions: `say` words the facts of a refusal.

Invariant: pure. Equal refusals give equal sentences, and every number in a sentence is a number of
its facts.
"""

from gangsched.sentences.say import say
from gangsched.sentences.wording import Sentences, capital

__all__ = ["Sentences", "capital", "say"]
