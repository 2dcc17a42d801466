"""The heart of Podium on one screen: an agent, a tool, a handoff, a crash and a resume.

The planner measures one wall and hands over to the builder. While the builder measures the other wall, the process
dies. Another process resumes the run: it does not measure the first wall again and repeats no finished model call. No
key is needed, because a server on this machine plays the models.

    python examples/heart.py
"""

import os
import signal
import sys
from tempfile import TemporaryDirectory

import anyio

import podium
from podium.testing import ModelServer, calls

REPLIES = {
    "planner-model": (calls("measure", wall="left"), "A shelf of 240 cm on the left wall, and one on the right wall."),
    "builder-model": (calls("measure", wall="right"), "Cut one board to 240 cm and one to 180 cm."),
}


@podium.repeatable
def measure(wall: str) -> str:
    """Return the width of the left or the right wall."""
    print(f"measuring the {wall} wall", flush=True)
    if wall == "right" and "doomed" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"left": "240 cm", "right": "180 cm"}[wall]


planner = podium.Agent(name="planner", prompt="You plan shelves.", model="openai:planner-model", handoff="builder")
builder = podium.Agent(name="builder", prompt="You write a cutting list.", model="openai:builder-model")


async def start() -> None:
    async with podium.start(planner, "Shelves, please", agents=[builder], tools=[measure]) as run:
        print("run", run.id, "started", flush=True)
        await run.result()


async def main() -> None:
    with TemporaryDirectory() as home:
        async with ModelServer(REPLIES) as server:
            os.environ.update(PODIUM_HOME=home, OPENAI_BASE_URL=server.url, OPENAI_API_KEY="any")
            killed = await anyio.run_process([sys.executable, __file__, "doomed"], check=False)
            print(killed.stdout.decode() + f"killed by signal {-killed.returncode}")

            run_id = killed.stdout.decode().split()[1]
            async with podium.App() as app, app.resume(run_id, tools=[measure]) as run:
                print("resumed:", (await run.result()).text)
            print("model calls:", ", ".join(received.call.agent for received in server.calls))


if __name__ == "__main__":
    anyio.run(start if "doomed" in sys.argv else main)
