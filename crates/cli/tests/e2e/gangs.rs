//! Gangs on a real pool: jobs whose tasks run at once, all or none, on one or several nodes.

use crate::jobs::{job, logs, open_folder, submit, taken, two_nodes, until};
use crate::pool::{Pool, echo_app, text};

/// Each of its processes says which it is, waits for all others, and says so.
const GANG: &str = "echo task $WEAL_TASK of $WEAL_TASKS on $NODE of $WEAL_TASK_NODES at $WEAL_TASK_ADDRESSES; touch here-$WEAL_TASK; \
     while [ $(ls here-* | wc -l) -lt $WEAL_TASKS ]; do sleep 0.1; done; echo all are here";

#[test]
fn the_tasks_of_a_gang_run_at_once_on_several_nodes_and_know_each_other() {
    let mut pool = two_nodes();
    pool.up();
    let options = ["--name", "gang", "--tasks", "2", "--memory", "160MiB", "--cpus", "1"];
    let id = taken(&pool, &options, &["sh", "-c", GANG]);
    let done = until(&pool, &id, "done");
    assert_eq!(
        (done["tasks"].as_u64(), done["cpus"].as_f64(), done["attempt"].as_u64()),
        (Some(2), Some(1.0), Some(1)),
        "{done}"
    );
    for task in ["0", "1"] {
        let output = text(&pool.run(&["job", "logs", &id, "--task", task]).stdout);
        // Both do not fit on one node.
        let node = if output.contains("on n1 of") { "n1" } else { "n2" };
        let nodes = if (task == "0") == (node == "n1") { "n1,n2" } else { "n2,n1" };
        let said = format!("task {task} of 2 on {node} of {nodes} at 127.0.0.1,127.0.0.1\nall are here\n");
        assert_eq!(output, said);
    }
    let wide = submit(&pool, &["--tasks", "30", "--memory", "150MiB"], &["true"]);
    assert!(!wide.status.success() && text(&wide.stderr).contains("all nodes together have room for"), "{}", text(&wide.stderr));
}

#[test]
fn the_tasks_of_a_gang_find_its_inputs_and_the_last_of_them_brings_the_results_of_all() {
    let mut pool = two_nodes();
    pool.up();
    let folder = open_folder("gang-inputs-and-results");
    let path = |name: &str| folder.join(name).display().to_string();
    std::fs::write(path("data.txt"), "3\n").unwrap();
    let data = path("data.txt");
    let options = ["--tasks", "2", "--memory", "160MiB", "--input", &data, "--result", "out/*", "--result", "sum"];
    // Jobs of different names run as different users, so that none writes where another has made folders.
    let run = |name: &str, to: &std::path::Path, script: &str| {
        let to = to.join("results").display().to_string();
        taken(&pool, &[&options[..], &["--to", &to, "--name", name]].concat(), &["sh", "-c", script])
    };
    // The first task ends at once, and the results of the second are not there yet.
    let sum = run(
        "sum",
        &folder,
        "mkdir -p out; cat data.txt $WEAL_HOSTFILE > out/$WEAL_TASK; [ $WEAL_TASK = 0 ] && exit; \
         until [ -e go ]; do sleep 0.1; done; cat out/* > sum",
    );
    let own = |id: &str| pool.state().join(format!("data/job.{id}"));
    pool.eventually("both have written", || (own(&sum).join("out/0").exists() && own(&sum).join("out/1").exists()).then_some(()));
    until(&pool, &sum, "running");
    assert!(!folder.join("results/out").exists(), "nothing is copied before the last has ended");
    std::fs::write(own(&sum).join("go"), "").unwrap();
    until(&pool, &sum, "done");
    let each = "3\n127.0.0.1\n127.0.0.1\n";
    let result = |name: &str| std::fs::read_to_string(folder.join("results").join(name)).unwrap();
    assert_eq!([result("out/0"), result("out/1"), result("sum")], [each.to_owned(), each.to_owned(), each.repeat(2)]);
    pool.eventually("its folder is scrubbed", || (!own(&sum).exists()).then_some(()));
    let bad = run("bad", &open_folder("gang-without-results"), "mkdir -p out; touch out/$WEAL_TASK");
    let why = until(&pool, &bad, "failed")["detail"].as_str().unwrap().to_owned();
    assert!(why.contains("its results are not in place: it has left nothing that `sum` names"), "{why}");
    let half = run("half", &open_folder("gang-of-which-half-fails"), "mkdir -p out; touch out/$WEAL_TASK sum; exit $WEAL_TASK");
    until(&pool, &half, "failed");
    assert!(own(&bad).exists() && own(&half).exists(), "somebody may want to see what they did");
}

/// A job that sleeps for ever keeps its memory, misses its goal, and ends when it is told to.
#[test]
fn a_gang_that_waits_says_who_has_its_memory_and_a_late_job_by_how_much_it_is_late() {
    let mut pool = two_nodes();
    pool.up();
    let late = ["submit", "--done-by", "1s", "--memory", "200MiB", "--name", "sleeper", "--", "sleep", "1000000"];
    assert!(pool.run(&late).status.success());
    until(&pool, "sleeper-1", "running");
    let id = taken(&pool, &["--name", "gang", "--tasks", "2", "--memory", "160MiB"], &["true"]);
    let expected = "it needs 160MiB of memory for each of 2 tasks at once, and beside `sleeper-1` there is room for 1 of them";
    let why = |pool: &Pool| job(pool, &id).and_then(|job| job["detail"].as_str().map(str::to_owned));
    let first = why(&pool).expect("it is known");
    assert!(!first.is_empty(), "it says why from the first moment on");
    pool.eventually("what is missing", || why(&pool).filter(|why| why.contains(expected)));
    let shown = |words: &[&str]| text(&pool.run(words).stdout);
    pool.eventually("the goal is missed", || shown(&["job", "show", "sleeper-1"]).contains("(missed by ").then_some(()));
    assert!(pool.run(&["job", "cancel", "sleeper-1"]).status.success());
    until(&pool, &id, "done");
}

#[test]
fn a_gang_stands_still_and_goes_on_as_a_whole_and_ends_with_its_first_task_that_fails() {
    let mut pool = two_nodes();
    pool.up();
    let script = "trap 'exit 0' TERM; if [ $ATTEMPT = 1 ] && [ $WEAL_TASK = 1 ]; then until [ -e fail ]; do sleep 0.1; done; exit 5; fi; \
         if [ $ATTEMPT = 2 ]; then exit 0; fi; while :; do date +%s%N; sleep 0.05; done";
    let options = ["--name", "pair", "--tasks", "2", "--memory", "160MiB", "--retries", "1"];
    let id = taken(&pool, &options, &["sh", "-c", script]);
    let running = until(&pool, &id, "running");
    let mut nodes: Vec<&str> = running["nodes"].as_array().unwrap().iter().map(|node| node.as_str().unwrap()).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, ["n1", "n2"]);
    assert!(pool.run(&["job", "pause", &id]).status.success());
    until(&pool, &id, "paused");
    let still = logs(&pool, &id);
    pool.kill_role("controller");
    until(&pool, &id, "paused");
    assert_eq!(logs(&pool, &id), still, "it stands still");
    assert!(pool.run(&["job", "resume", &id]).status.success());
    pool.eventually("it writes again", || (logs(&pool, &id).len() > still.len()).then_some(()));
    std::fs::write(pool.state().join("data").join(format!("job.{id}")).join("fail"), "").unwrap();
    let done = until(&pool, &id, "done");
    assert_eq!(done["attempt"], 2, "{done}");
    let events = pool.json(&["events"]).to_string();
    assert!(events.contains("task 2 of 2"), "{events}");
}

#[test]
fn a_gang_whose_node_leaves_the_pool_is_run_again_where_there_is_room() {
    let mut pool = two_nodes();
    pool.up();
    let script = "if [ $ATTEMPT = 1 ]; then sleep 1000; fi; echo second run";
    let id = taken(&pool, &["--name", "left", "--tasks", "2", "--memory", "50MiB"], &["sh", "-c", script]);
    until(&pool, &id, "running");
    let one = format!("[[node]]\nname = \"n3\"\ncpu = 0.7\nmemory = \"300MiB\"\n\n{}", echo_app("echo", ""));
    pool.write(&one);
    let done = until(&pool, &id, "done");
    assert_eq!((done["attempt"].as_u64(), text(&logs(&pool, &id))), (Some(2), "second run\n".to_owned()), "{done}");
}

fn has_mpirun() -> bool {
    let has = std::process::Command::new("mpirun").arg("--version").output().is_ok();
    if !has {
        weal_testing::skip("this machine has no mpirun (openmpi-bin)");
    }
    has
}

/// What weal promises of MPI: `mpirun` inside one task.
#[test]
fn a_program_of_mpi_runs_inside_one_task() {
    if !has_mpirun() {
        return;
    }
    let mut pool = Pool::echo();
    pool.up();
    let run = "mpirun --oversubscribe --mca btl self,vader -n 2 sh -c 'echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE'";
    let id = taken(&pool, &["--name", "mpi", "--env", "HOME=/tmp"], &["sh", "-c", run]);
    until(&pool, &id, "done");
    let output = text(&logs(&pool, &id));
    assert!(output.contains("rank 0 of 2") && output.contains("rank 1 of 2"), "{output}");
}

/// Each rank says whose control group it is in.
#[test]
fn a_program_of_mpi_runs_as_the_tasks_of_a_gang() {
    if !has_mpirun() {
        return;
    }
    let mut pool = two_nodes();
    pool.up();
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/mpi-gang.sh");
    let folder = open_folder("mpi-gang");
    std::fs::copy(&script, folder.join("mpi-gang.sh")).unwrap();
    let (input, to) = (folder.join("mpi-gang.sh").display().to_string(), folder.join("results").display().to_string());
    let options = ["--name", "mpi", "--tasks", "2", "--memory", "160MiB", "--input", &input, "--result", "rank-*", "--to", &to];
    let rank = "grep -o 'job[.]mpi-1[.]1[^/]*$' /proc/self/cgroup | head -n 1 > rank-$OMPI_COMM_WORLD_RANK";
    let id = taken(&pool, &options, &["sh", "mpi-gang.sh", "sh", "-c", rank]);
    until(&pool, &id, "done");
    let group = |rank: u32| std::fs::read_to_string(folder.join(format!("results/rank-{rank}"))).unwrap();
    assert_eq!([group(0), group(1)], ["job.mpi-1.1\n", "job.mpi-1.1.1\n"]);
}
