"""Several parties in one process, whose test ends also where one of them waits without end."""

import threading
import time


def at_once(*calls, patience=60.0):
    """What each call comes to, errors included, when all run at the same time.

    The thread of a call that is not through by then is left behind: a pool would wait for it.
    """
    found = [None] * len(calls)

    def act(place, call):
        try:
            found[place] = call()
        except BaseException as error:  # it is what is looked at
            found[place] = error

    acting = [threading.Thread(target=act, args=each, daemon=True) for each in enumerate(calls)]
    for thread in acting:
        thread.start()
    end = time.monotonic() + patience
    for thread in acting:
        thread.join(max(0.0, end - time.monotonic()))
    assert not any(thread.is_alive() for thread in acting), f"somebody still waits after {patience:g} s: {found}"
    return found


def all_of(*calls, patience=60.0):
    """The same; the first error is raised."""
    found = at_once(*calls, patience=patience)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return found
