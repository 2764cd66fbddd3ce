"""Reads what rankpool serves as train.py does, without PyTorch: it starts in a tenth of a second.

It trains nothing, but prints what train.py prints. There is one process per trainer, as RANK and
WORLD_SIZE say. In every step all trainers send their samples to the first one, at MASTER_ADDR and
MASTER_PORT, which adds up the digest and tells them whether to stop: so no trainer is ahead of
another. A sample's "loss" depends only on its id and the epoch.
"""

import argparse
import json
import os
import sys
import time
from multiprocessing.connection import Client, Listener

sys.path.insert(
    0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python", "examples")
)

from digest import Digest, IdsDigest
from losses import loss

import rankpool

CONNECT_SECONDS = 60.0  # on a busy machine the other trainers may start late


def arguments():
    """Returns the arguments; those that train.py has too mean the same."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-name")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--sampler", default="pads")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drop-last", action="store_true")
    parser.add_argument("--sampler-drop-last", action="store_true")
    parser.add_argument(
        "--first-chunk", default="0", help='of sampler chunks; "others": that the others use next'
    )
    parser.add_argument("--losses", metavar="L.npy", help="report these instead (needs numpy)")
    parser.add_argument(
        "--embeddings", metavar="E.npy", help="report these with the losses (needs numpy)"
    )
    parser.add_argument(
        "--ahead", type=int, help="batches asked for ahead (default: the client's, up to 8)"
    )
    parser.add_argument("--save", metavar="FILE")
    parser.add_argument("--resume", metavar="FILE")
    parser.add_argument("--checkpoint", metavar="FILE")
    parser.add_argument("--stop-after", type=int, metavar="BATCHES")
    parser.add_argument(
        "--accuracy", action="store_true",
        help="report an accuracy after each epoch, of epoch and seed alone",
    )
    parser.add_argument("--accuracies", metavar="A.npy", help="report these: floats [epochs]")
    parser.add_argument(
        "--trains-on-all", action="store_true", help="tell no batches apart that are evaluated"
    )
    parser.add_argument("--digest", action="store_true")
    parser.add_argument("--digest-log", metavar="FILE")
    parser.add_argument("--ids-digest", action="store_true")
    args = parser.parse_args()
    if args.ahead:
        rankpool.dataset.MAX_AHEAD = args.ahead
    if args.checkpoint:
        args.save = args.checkpoint
        args.resume = args.checkpoint if os.path.exists(args.checkpoint) else None
    return args


class Group:
    """All trainers of the run."""

    def __init__(self, rank, world):
        self.rank, self.world, self._peers = rank, world, []
        if world == 1:
            return
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        if rank == 0:
            with Listener(address, backlog=world) as door:
                self._peers = [door.accept() for _ in range(world - 1)]
        else:
            self._peers = [connected(address)]

    def gather(self, mine):
        """Gathers a value from every trainer on the first one, which must then call `tell`; returns
        None on the others."""
        if self.rank:
            self._peers[0].send(mine)
            return None
        return [mine, *(peer.recv() for peer in self._peers)]

    def tell(self, answer=None):
        """Returns the first trainer's answer, on every trainer."""
        if self.rank:
            return self._peers[0].recv()
        for peer in self._peers:
            peer.send(answer)
        return answer


def connected(address):
    """Returns a connection to the first trainer, which may not listen yet."""
    until = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return Client(address)
        except OSError as error:
            if time.monotonic() > until:
                sys.exit(f"no trainer 0 at {address[0]}:{address[1]}: {error}")
            time.sleep(0.005)


class Trainer:
    """One training process."""

    def __init__(self, args, group, stop):
        self.args, self.group, self.stop = args, group, stop
        self.digest = None
        if group.rank == 0 and (args.digest or args.digest_log):
            self.digest = Digest(
                open(args.digest_log, "a" if args.resume else "w") if args.digest_log else None
            )
        self.ids = IdsDigest() if args.ids_digest else None
        self.data = rankpool.Dataset(args.data_name)
        drops = {
            "drop_last": args.drop_last, "sampler_drop_last": args.sampler_drop_last,
            "epochs": args.epochs, "evaluates": not args.trains_on_all,
        }
        self.embeddings = recorded(args.embeddings) if args.embeddings else None
        if self.embeddings is not None:
            drops["embeddings"] = self.embeddings.shape[2]
        first = args.first_chunk
        drops["first_chunk"] = self.data.next_chunk() if first == "others" else int(first)
        self.sampler = rankpool.BatchSampler(
            self.data, args.batch_size, args.seed, args.sampler, **drops
        )
        self.test = self.test_data()
        self.losses = recorded(args.losses) if args.losses else None
        self.trained = 0  # batches of this run
        if args.resume:
            with open(args.resume) as file:
                state = json.load(file)
            if self.ids:
                self.ids = IdsDigest(bytes.fromhex(state.pop("ids")))
            self.sampler.load_state_dict(state)

    def test_data(self):
        """Returns the data set "test" or "val" and a sampler of it, None when neither is served."""
        served = {entry["name"] for entry in rankpool.data_sets()} - {self.data.name}
        name = next((n for n in ("test", "val") if n in served), None)
        if name is None:
            return None
        data = rankpool.Dataset(name)
        return data, rankpool.BatchSampler(data, self.args.batch_size, sampler="sequential")

    def run(self):
        """Trains to the end, or until it is to stop."""
        for epoch in range(self.sampler.epoch, self.args.epochs):
            self.sampler.set_epoch(epoch)
            for samples in self.data.batches(self.sampler):
                if self.step(epoch, samples):
                    return
            if self.test:
                data, sampler = self.test
                sampler.set_epoch(epoch)
                seen = sum(len(samples.ids) for samples in data.batches(sampler))
                self.group.gather(seen)
                self.group.tell()
            if self.args.accuracy and self.group.rank == 0:
                self.sampler.metric("accuracy", 1 - 0.5 / (2 + epoch + self.args.seed / 4))
            if self.args.accuracies and self.group.rank == 0:
                self.sampler.metric("accuracy", recorded(self.args.accuracies)[epoch])
            if self.args.save:
                self.save()

    def step(self, epoch, samples):
        """Handles a batch; returns whether it was the last one because training is to stop."""
        ids, number = list(samples.ids), self.sampler.batch - 1
        evaluated = self.sampler.evaluating(ids)
        self.sampler.report(
            ids,
            self.losses[epoch][ids] if self.losses is not None else [loss(epoch, i) for i in ids],
            self.embeddings[epoch][ids] if self.embeddings is not None else None,
        )
        kept = self.args.digest or self.args.digest_log
        views = samples.views if kept else [b""] * len(ids)
        self.trained += 1
        over = self.trained == self.args.stop_after or bool(self.stop and self.stop.signal)
        parts = self.group.gather((list(zip(ids, map(bytes, views))), over))
        if self.ids and parts and not evaluated:
            self.ids.add([id for part, _ in parts for id, _ in part])
        if self.digest:
            self.digest.add(epoch, number, [sample for part, _ in parts for sample in part])
        if not self.group.tell(parts and any(over for _, over in parts)):
            return False
        self.save()
        if self.group.rank == 0:
            print(f"stopped in epoch {epoch} after batch {number}", flush=True)
        return True

    def save(self):
        """Writes a checkpoint. The sampler's state is the same on every trainer, but each must ask
        its cache for it."""
        state = self.sampler.state_dict()
        if self.ids:
            state["ids"] = self.ids.ids.hex()
        if self.group.rank == 0 and self.args.save:
            with open(self.args.save + ".new", "w") as file:
                json.dump(state, file)
            os.replace(self.args.save + ".new", self.args.save)


def recorded(path):
    """Returns the numbers in a file, by epoch."""
    import numpy  # importing it takes as long as all the rest

    return numpy.load(path, mmap_mode="r")


def main():
    args = arguments()
    stop = rankpool.Stop() if args.checkpoint else None
    try:
        trainer = Trainer(args, Group(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])), stop)
        trainer.run()
    except rankpool.RankpoolError as error:
        sys.exit(str(error))
    except (EOFError, ConnectionError):
        sys.exit("another trainer has ended")
    if trainer.digest:
        print("digest", trainer.digest.hex(), flush=True)
    if trainer.ids and trainer.group.rank == 0:
        print("ids-digest", trainer.ids.hex(), flush=True)


if __name__ == "__main__":
    main()
