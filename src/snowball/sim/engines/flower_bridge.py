"""The server's side of `FlowerEngine`: a Flower app that trains the cohorts it gets over a socket.

Messages are bytes of `snowball.serialization`; nothing is unpickled. First come the experiment's settings, then one
message per round. Each is answered by one message per client, or by one that says what went wrong.
"""

from multiprocessing.connection import Listener

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from snowball.records.checkpoint import RunState
from snowball.serialization import pack, unpack
from snowball.sim.engines.flower import GridTrainer, client_app

__all__ = ["client_app", "server_app"]

server_app = ServerApp()


@server_app.main()
def serve_cohorts(grid: Grid, context: Context) -> None:
    """Train cohorts until the engine hangs up."""
    with Listener(str(context.run_config["socket"])) as listener, listener.accept() as connection:
        try:
            trainer = GridTrainer(unpack(connection.recv_bytes()), grid)
            while True:
                state, cohort, round = unpack(connection.recv_bytes())
                try:
                    for slot, reply in trainer.train(RunState(**state), cohort, round):
                        connection.send_bytes(pack([slot, list(reply)]))
                except Exception as error:
                    connection.send_bytes(pack(str(error)))
        except (EOFError, ConnectionError):
            return
