"""M/M/1 stations at load 0.8 on SimPy; prints one JSON object."""

import json
import random
import sys
import time

import simpy

stations, wanted = int(sys.argv[1]), int(sys.argv[2])
events = arrivals = seen = 0


class Station:
    """Callbacks on time-outs: SimPy without processes and resources, its fastest way."""

    def __init__(self, environment, number):
        self.environment = environment
        self.random = random.Random(number)
        self.customers = 0
        self.schedule(1.25, self.arrive)

    def schedule(self, mean, callback):
        timeout = self.environment.timeout(self.random.expovariate(1.0 / mean))
        timeout.callbacks.append(callback)

    def arrive(self, _):
        global events, arrivals, seen
        events += 1
        arrivals += 1
        seen += self.customers
        self.schedule(1.25, self.arrive)
        self.customers += 1
        if self.customers == 1:
            self.schedule(1.0, self.depart)

    def depart(self, _):
        global events
        events += 1
        self.customers -= 1
        if self.customers > 0:
            self.schedule(1.0, self.depart)


environment = simpy.Environment()
kept = [Station(environment, number) for number in range(stations)]
start = time.perf_counter()
environment.run(until=wanted / 1.6 / stations)
seconds = time.perf_counter() - start
print(json.dumps({"events": events, "seconds": seconds, "customers": seen / max(arrivals, 1)}))
