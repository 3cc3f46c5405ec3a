//! `weal deploy`, `weal history`, `weal rollback`, and orders about one application.

use clap::Args;
use weal_model::InstanceRange;

use super::PoolArgs;

/// How a deploy is begun and followed.
#[derive(Debug, Clone, Args)]
pub struct Follow {
    /// Do not ask.
    #[arg(short, long)]
    pub yes: bool,
    /// Seconds to wait until it is done or has failed.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub timeout: u64,
}

/// `weal deploy`.
#[derive(Debug, Clone, Args)]
pub struct Deploy {
    /// Which pool.
    #[command(flatten)]
    pub target: PoolArgs,
    /// How.
    #[command(flatten)]
    pub follow: Follow,
    /// Only say what would change.
    #[arg(long)]
    pub dry_run: bool,
}

/// `weal rollback`.
#[derive(Debug, Clone, Args)]
pub struct Rollback {
    /// Which pool.
    #[command(flatten)]
    pub target: PoolArgs,
    /// How.
    #[command(flatten)]
    pub follow: Follow,
    /// The version to return to, as `weal history` lists it [default: the one before].
    #[arg(value_name = "VERSION")]
    pub version: Option<u64>,
}

/// An order about one application that is waited for.
#[derive(Debug, Clone, Args)]
pub struct AppTarget {
    /// Which pool.
    #[command(flatten)]
    pub target: PoolArgs,
    /// The application.
    pub app: String,
    /// Seconds to wait until it is done.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub timeout: u64,
}

/// `weal scale`.
#[derive(Debug, Clone, Args)]
pub struct Scale {
    /// Which pool, and which application.
    #[command(flatten)]
    pub app: AppTarget,
    /// How many: `3`, `1..4`, or `config` for what weal.toml says.
    #[arg(value_name = "INSTANCES", value_parser = instances)]
    pub instances: Wanted,
}

/// `weal keep-awake`.
#[derive(Debug, Clone, Args)]
pub struct KeepAwake {
    /// Which pool, and which application.
    #[command(flatten)]
    pub app: AppTarget,
    /// For how long: `10m`, `8h`; a week at most.
    #[arg(long = "for", value_name = "DURATION", default_value = "10m")]
    pub span: String,
    /// End an earlier order instead.
    #[arg(long, conflicts_with = "span")]
    pub end: bool,
}

/// `weal exec`.
#[derive(Debug, Clone, Args)]
pub struct Exec {
    /// Which pool.
    #[command(flatten)]
    pub target: PoolArgs,
    /// The application.
    pub app: String,
    /// Beside this instance [default: one that is ready].
    #[arg(long, value_name = "ID")]
    pub instance: Option<String>,
    /// Program and arguments, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `weal reload`.
#[derive(Debug, Clone, Args)]
pub struct Reload {
    /// Which pool.
    #[command(flatten)]
    pub target: PoolArgs,
    /// The application.
    pub app: String,
    /// Only this instance [default: all].
    #[arg(long, value_name = "ID")]
    pub instance: Option<String>,
}

/// How many instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// What the config says.
    Config,
    /// So many.
    Range(InstanceRange),
}

fn instances(text: &str) -> Result<Wanted, String> {
    if text == "config" {
        return Ok(Wanted::Config);
    }
    if text == "0" {
        return Err("an application without instances is stopped: `weal stop APP` does that".to_owned());
    }
    let (min, max) = text.split_once("..").unwrap_or((text, text));
    match (min.parse(), max.parse()) {
        (Ok(min), Ok(max)) => Ok(Wanted::Range(InstanceRange { min, max })),
        _ => Err("write a number such as 3, a range such as 1..4, or `config`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_are_a_number_a_range_or_what_the_config_says() {
        assert_eq!(instances("3"), Ok(Wanted::Range(InstanceRange { min: 3, max: 3 })));
        assert_eq!(instances("1..4"), Ok(Wanted::Range(InstanceRange { min: 1, max: 4 })));
        assert_eq!(instances("config"), Ok(Wanted::Config));
        assert!(instances("0").unwrap_err().contains("weal stop"));
        assert!(instances("many").is_err() && instances("-1").is_err());
    }
}
