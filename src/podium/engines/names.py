"""The names that settings and engines share."""

REHEARSAL = "rehearsal"
KEY_NAME = "OPENAI_API_KEY"
OPENAI_URL = "https://api.openai.com/v1"
