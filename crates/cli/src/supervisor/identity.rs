//! What a person is told about whom applications run as, and what keeps them apart.

use weal_model::PoolSpec;
use weal_node::Kind;

use super::console::Console;
use crate::output::Tone;
use crate::users;

/// Says which applications have more rights than they should, and what does not keep them apart.
pub fn say_users(console: &Console, spec: &PoolSpec) {
    for line in warnings(spec, users::is_root(), |name| users::find(name).is_ok_and(|user| user.uid == 0)) {
        console.tell(Tone::Warn, "users:", &line);
    }
}

/// Says when nothing divides this machine between applications.
pub fn say_isolation(console: &Console) {
    let (capabilities, _) = weal_node::capabilities::of_this_machine();
    if capabilities.isolation == Kind::None.as_str() {
        let lost =
            "there are no control groups here, so that one can take all CPU and memory, and its processes can outlive weal down";
        console.tell(Tone::Warn, "no isolation between applications:", lost);
    }
}

/// One sentence for each thing that somebody should know.
fn warnings(spec: &PoolSpec, by_root: bool, is_root: impl Fn(&str) -> bool) -> Vec<String> {
    if !by_root {
        return vec![
            "weal and every application run as one user, and can read and stop each other: only root gives each its own"
                .to_owned(),
        ];
    }
    let of_root = spec.apps.values().filter(|app| app.user.as_deref().is_some_and(&is_root));
    of_root
        .map(|app| format!("{} runs as root: it can do anything on this machine, and so can anyone who breaks into it", app.name))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use weal_model::AppSpec;

    use super::*;

    #[test]
    fn an_application_that_runs_as_root_is_named_and_one_with_a_user_is_not() {
        let app = |name: &str, user: Option<&str>| {
            let app = AppSpec { user: user.map(str::to_owned), ..AppSpec::example(name) };
            (app.name.clone(), app)
        };
        let apps = BTreeMap::from([app("admin", Some("root")), app("free", None), app("web", Some("www-data"))]);
        let spec = PoolSpec { apps, ..PoolSpec::example() };
        let said = warnings(&spec, true, |name| name == "root");
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("admin runs as root"), "{said:?}");
        assert_eq!(warnings(&spec, false, |_| false).len(), 1);
    }
}
