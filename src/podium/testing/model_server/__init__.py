"""Run a model server that replies from scripts over HTTP.

The server implements OpenAI's Chat Completions API and Responses API, Anthropic's Messages API and the Gemini API on
127.0.0.1, streaming or not, with tool calls, usage and every fault that a script can define. The requested model
selects a script, or the prompt contains one, so one server can serve any number of agents.

    async with ModelServer(["hello"]) as server:
        ...                                         # ask the model at server.url
        assert server.calls[0].call.messages[0].text == "hi"

From the command line: `python -m podium.testing.model_server --latency 0.05 --log calls.jsonl`.
"""

from .server import ModelServer, Received

__all__ = ["ModelServer", "Received"]
