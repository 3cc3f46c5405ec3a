"""M/M/1 stations at load 0.8 on SimPy; prints one JSON object.

`processes` is SimPy's documented way: a process that makes customers, a process per customer, and a resource. `callbacks` is its fastest:
time-outs with callbacks and nothing else.
"""

import json
import random
import sys
import time

import simpy

way, stations, wanted = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
events = arrivals = seen = 0


def source(environment, number):
    global events, arrivals, seen
    rng = random.Random(number)
    server = simpy.Resource(environment, capacity=1)
    while True:
        yield environment.timeout(rng.expovariate(0.8))
        events += 1
        arrivals += 1
        seen += server.count + len(server.queue)
        environment.process(customer(environment, rng, server))


def customer(environment, rng, server):
    global events
    with server.request() as turn:
        yield turn
        yield environment.timeout(rng.expovariate(1.0))
    events += 1


class Station:
    def __init__(self, environment, number):
        self.environment = environment
        self.random = random.Random(number)
        self.customers = 0
        self.schedule(0.8, self.arrive)

    def schedule(self, rate, callback):
        timeout = self.environment.timeout(self.random.expovariate(rate))
        timeout.callbacks.append(callback)

    def arrive(self, _):
        global events, arrivals, seen
        events += 1
        arrivals += 1
        seen += self.customers
        self.schedule(0.8, self.arrive)
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
if way == "processes":
    for number in range(stations):
        environment.process(source(environment, number))
else:
    kept = [Station(environment, number) for number in range(stations)]
start = time.process_time()
environment.run(until=wanted / 1.6 / stations)
seconds = time.process_time() - start
print(json.dumps({"events": events, "seconds": seconds, "customers": seen / max(arrivals, 1)}))
