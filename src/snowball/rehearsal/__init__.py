"""A rehearsal: an operator's federation under the attacks that people fear, with the defenses that fit its size."""
