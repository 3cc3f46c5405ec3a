"""Solves an exported planning problem with a general solver, and prints {"lowest", "bound", "status", "ms"}; the time is that of the
solver alone.

usage: oracle.py cp-sat|highs|lp PROBLEM.json SECONDS

All maximise the utility of the worst off: every application needs cpu(u) >= base + slope * u for each of its lines.
"""
import json
import math
import sys
import time


def cp_sat(problem, seconds):
    """Loads in thousandths of a core, utility in ten-thousandths."""
    from ortools.sat.python import cp_model

    core, unit = 1000, 10000
    model = cp_model.CpModel()
    nodes, apps = problem["nodes"], problem["apps"]
    most = math.floor(min(app["best"] for app in apps) * unit)
    u = model.new_int_var(math.ceil(max(app["least"] for app in apps) * unit), most, "u")
    loads, places = {}, {}
    for m, app in enumerate(apps):
        for n, (cpu, _) in enumerate(nodes):
            limit = min(cpu, app["instance_cpu"] or cpu)
            places[m, n] = model.new_bool_var("")
            loads[m, n] = model.new_int_var(0, math.floor(limit * core), "")
            model.add(loads[m, n] <= math.floor(limit * core) * places[m, n])
        count = sum(places[m, n] for n in range(len(nodes)))
        model.add(count >= app["instances"][0])
        model.add(count <= min(app["instances"][1], len(nodes)))
        given = model.new_int_var(0, math.floor(sum(cpu for cpu, _ in nodes) * core), "")
        model.add(given == sum(loads[m, n] for n in range(len(nodes))))
        for base, slope in app["lines"]:
            # given / core >= base + slope * u / unit, in whole numbers of a 64th
            model.add(64 * unit * given >= math.ceil(64 * unit * core * base) + math.ceil(64 * core * slope) * u)
    for n, (cpu, memory) in enumerate(nodes):
        model.add(sum(loads[m, n] for m in range(len(apps))) <= math.floor(cpu * core))
        model.add(sum(app["memory"] // 2**20 * places[m, n] for m, app in enumerate(apps)) <= memory // 2**20)
    model.maximize(u)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 2
    begun = time.monotonic()
    status = solver.solve(model)
    ms = (time.monotonic() - begun) * 1e3
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    lowest = solver.objective_value / unit if found else None
    return lowest, solver.best_objective_bound / unit, solver.status_name(status).lower(), ms


def milp(problem, seconds):
    import highspy

    h = highspy.Highs()
    h.silent()
    h.setOptionValue("time_limit", seconds)
    h.setOptionValue("threads", 2)
    nodes, apps = problem["nodes"], problem["apps"]
    u = h.addVariable(lb=max(app["least"] for app in apps), ub=min(app["best"] for app in apps))
    loads, places = {}, {}
    for m, app in enumerate(apps):
        for n, (cpu, _) in enumerate(nodes):
            limit = min(cpu, app["instance_cpu"] or cpu)
            places[m, n] = h.addBinary()
            loads[m, n] = h.addVariable(lb=0, ub=limit)
            h.addConstr(loads[m, n] <= limit * places[m, n])
        count = h.qsum(places[m, n] for n in range(len(nodes)))
        h.addConstr(count >= app["instances"][0])
        h.addConstr(count <= min(app["instances"][1], len(nodes)))
        given = h.addVariable(lb=0)
        h.addConstr(h.qsum(loads[m, n] for n in range(len(nodes))) - given == 0)
        for base, slope in app["lines"]:
            h.addConstr(given - slope * u >= base)
    for n, (cpu, memory) in enumerate(nodes):
        h.addConstr(h.qsum(loads[m, n] for m in range(len(apps))) <= cpu)
        h.addConstr(h.qsum(app["memory"] / 2**20 * places[m, n] for m, app in enumerate(apps)) <= memory / 2**20)
    begun = time.monotonic()
    h.maximize(u)
    ms = (time.monotonic() - begun) * 1e3
    info = h.getInfo()
    found = abs(info.objective_function_value) < 1e20
    status = h.modelStatusToString(h.getModelStatus()).lower()
    return (info.objective_function_value if found else None), info.mip_dual_bound, status, ms


def seats(problem, seconds):
    import highspy

    h = highspy.Highs()
    h.silent()
    h.setOptionValue("time_limit", seconds)
    flows, clusters, nodes = problem["flows"], problem["clusters"], problem["nodes"]
    u = h.addVariable(lb=-1, ub=min(flow["best"] for flow in flows))
    demand = [[] for _ in clusters]
    for flow in flows:
        taken = h.addVariable(lb=0)
        for base, slope in flow["lines"]:
            h.addConstr(taken - slope * u >= base)
        for d, factor in flow["loads"]:
            demand[d].append(factor * taken)
    used = [[] for _ in nodes]
    for d, hosts in enumerate(clusters):
        loads = [h.addVariable(lb=0) for _ in hosts]
        for host, load in zip(hosts, loads):
            used[host].append(load)
        if demand[d]:
            h.addConstr(h.qsum(loads) - h.qsum(demand[d]) == 0)
    for n, loads in enumerate(used):
        if loads:
            h.addConstr(h.qsum(loads) <= nodes[n])
    begun = time.monotonic()
    h.maximize(u)
    ms = (time.monotonic() - begun) * 1e3
    status = h.modelStatusToString(h.getModelStatus()).lower()
    return h.getInfo().objective_function_value, None, status, ms


def main():
    solver, file, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    with open(file) as opened:
        problem = json.load(opened)
    solve = {"cp-sat": cp_sat, "highs": milp, "lp": seats}[solver]
    lowest, bound, status, ms = solve(problem, seconds)
    print(json.dumps({"lowest": lowest, "bound": bound, "status": status, "ms": ms}))


main()
