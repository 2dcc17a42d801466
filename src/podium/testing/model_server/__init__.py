"""A model at the other end of an HTTP connection that says what a script says.

It speaks OpenAI's chat completions and Anthropic's messages on 127.0.0.1, streamed or whole, with
tool calls, usage and every fault that a script knows. Scripts go by the name of the model that is
asked for, or ride in the prompt, so that one server plays any number of agents.

    async with ModelServer(["hello"]) as server:
        ...                                         # ask the model at server.url
        assert server.calls[0].call.messages[0].text == "hi"

As a program: `python -m podium.testing.model_server --latency 0.05 --log calls.jsonl`.
"""

from .server import ModelServer, Received

__all__ = ["ModelServer", "Received"]
