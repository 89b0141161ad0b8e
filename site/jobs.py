"""Jobs side by side, with one line of progress that says how much time is left."""

import os
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
WORKERS = min(4, CORES)  # each job may take a gigabyte of memory
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # in each job, as they fill the cores


def in_words(seconds):
    """Return a duration in words: ``8 s``, ``3 min 20 s``."""
    seconds = round(seconds)
    return f"{seconds} s" if seconds < 60 else f"{seconds // 60} min {seconds % 60} s"


class Progress:
    """How far the jobs are; see `run`.

    Parameters
    ----------
    expected : dict of str to float
        For each job the seconds that it takes on a common machine.
    workers : int, optional
        How many jobs run at a time.
    stream : file, optional
        Where the line goes, standard output by default. On a terminal it is written over and over;
        elsewhere it stands before what is said of each job.
    """

    def __init__(self, expected, stream=None, workers=WORKERS):
        self.expected, self.stream, self.lock = dict(expected), stream or sys.stdout, threading.Lock()
        self.workers = workers
        self.started, self.took, self.begin = {}, {}, time.monotonic()

    def left(self):
        """Return an estimate of the seconds that are left, from how fast the jobs have been so far; hold the lock."""
        now = time.monotonic()
        took = {name: t for name, t in self.took.items() if t > 0.05 * self.expected[name]}  # not what was done before
        running = {name: now - t for name, t in self.started.items() if name not in self.took}
        seen = sum(took.values()) + sum(running.values())
        planned = sum(self.expected[name] for name in took) + sum(
            min(seconds, self.expected[name]) for name, seconds in running.items())
        speed = seen / planned if planned > 20 else 1.0
        rest = {name: max(speed * seconds - running.get(name, 0.0), 0.0)
                for name, seconds in self.expected.items() if name not in self.took}
        return max([sum(rest.values()) / self.workers, *rest.values()], default=0.0)

    def show(self, text=None):
        """Write the line of progress, above it a line that stays, `text`."""
        with self.lock:
            running = [name for name in self.started if name not in self.took]
            line = f"{len(self.took)} of {len(self.expected)} done, {in_words(time.monotonic() - self.begin)} so far"
            if self.expected.keys() - self.took.keys():
                line += f", about {in_words(max(self.left(), 1))} left"
            if self.stream.isatty():
                stays = f"{text}\n" if text else ""
                width = shutil.get_terminal_size().columns - 1
                self.stream.write(f"\r\x1b[2K{stays}{(line + ': ' + ', '.join(running))[:width]}")
            else:
                self.stream.write(f"{line}: {text}\n" if text else f"{line}\n")
            self.stream.flush()

    def end(self):
        """Take the line of progress away."""
        if self.stream.isatty():
            self.stream.write("\r\x1b[2K")
            self.stream.flush()


def run(jobs, expected, said, first=None, stream=None, workers=WORKERS):
    """Carry out `jobs`, some at a time, those early that take long.

    Parameters
    ----------
    jobs : dict of str to callable
        An exception in one does not keep the others from running.
    expected : dict of str to float
        About how many seconds each takes; a job that is missing counts ten.
    said : callable
        Takes the name of a job that is done and its result, and returns a line that stays, or None.
    first : str, optional
        The job to begin with.
    stream : file, optional
        Where the progress goes.
    workers : int, optional
        How many at a time; as many as there are cores, four at most.

    Returns
    -------
    dict of str to object
        What each job returned, or the exception that it raised.
    """
    results = {}
    progress = Progress({name: expected.get(name, 10.0) for name in jobs}, stream, workers)

    def carry_out(name):
        start = time.monotonic()
        with progress.lock:
            progress.started[name] = start
        try:
            result = jobs[name]()
        except Exception as error:  # the caller tells
            result = error
        with progress.lock:
            results[name], progress.took[name] = result, time.monotonic() - start
        progress.show(said(name, result))

    with ThreadPoolExecutor(workers) as pool:
        try:
            futures = [pool.submit(carry_out, name)
                       for name in sorted(jobs, key=lambda name: (name != first, -progress.expected[name]))]
            while not all(future.done() for future in futures):
                time.sleep(0.2)
                if progress.stream.isatty():
                    progress.show()
        except KeyboardInterrupt:  # what runs would go on for a minute; kernels end with this process
            progress.end()
            print("\nstopped; what is done is kept, and the same command goes on from there", flush=True)
            os._exit(130)
    progress.end()
    for future in futures:
        future.result()  # what went wrong beside the jobs
    return results
