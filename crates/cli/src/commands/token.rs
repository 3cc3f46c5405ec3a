//! `weal token` and `weal audit`: who may call the API over TCP, and who ordered what.

use weal_model::written::{parse_size, show_size, show_span};
use weal_model::{JobQuota, Time, Work};
use weal_protocol::controller::{AuditEntry, Caller, TokenMade, TokenOrder, TokenScope, TokenView};

use crate::args::PoolArgs;
use crate::args::token::{Audit, Quota, Scope, TokenAction};
use crate::client::{self, Client, block_on};
use crate::output::{self, Table, cell, moment, now, span};
use crate::state::StateDir;
use crate::users;
use crate::values;

/// Runs `weal token`.
pub fn run(action: &TokenAction, json: bool) -> anyhow::Result<()> {
    match action {
        TokenAction::Create { target, name, scope, read_only, lasts, quota } => {
            let scope = if *read_only { Some(TokenScope::Read) } else { scope.map(asked_scope) };
            let (lasts_s, quota) = (lasts.map(|lasts| lasts.as_secs()), job_quota(quota)?);
            let order = TokenOrder { name: name.clone(), scope, lasts_s, quota };
            show_made(&asked(target, async |client| client.create_token(&order).await)?, json)
        }
        TokenAction::Rotate { target, name } => show_made(&asked(target, async |client| client.rotate_token(name).await)?, json),
        TokenAction::Revoke { target, name } => {
            let revoked = asked(target, async |client| client.revoke_token(name).await)?;
            if json {
                return output::json(&revoked, false);
            }
            output::print(&format!("the token `{name}` is revoked\n"));
            Ok(())
        }
        TokenAction::List { target } => {
            let tokens: Vec<TokenView> = asked(target, async |client| client.get("/v1/tokens").await)?;
            if json {
                return output::json(&tokens, false);
            }
            output::print(&list(&tokens, now()));
            for TokenView { name, .. } in tokens.iter().filter(|token| token.unscoped && !token.quota.is_open()) {
                output::complain(&format!(
                    "`{name}` may give every order, because it was made before there were scopes: revoke it, and make one with --scope jobs."
                ));
            }
            Ok(())
        }
    }
}

fn asked_scope(scope: Scope) -> TokenScope {
    match scope {
        Scope::Read => TokenScope::Read,
        Scope::Jobs => TokenScope::Jobs,
        Scope::All => TokenScope::All,
    }
}

/// What a scope lets be done, in words.
fn allows(scope: TokenScope) -> &'static str {
    match scope {
        TokenScope::Read => "read",
        TokenScope::Jobs => "read, and submit and order its own jobs",
        TokenScope::All => "read, and give every order",
    }
}

fn job_quota(quota: &Quota) -> anyhow::Result<JobQuota> {
    Ok(JobQuota {
        jobs: quota.max_jobs,
        work: quota.max_work.as_deref().map(values::long_span).transpose()?.map(Work),
        memory: quota.max_memory.as_deref().map(parse_size).transpose()?,
    })
}

/// The answer of the pool's controller.
fn asked<T>(target: &PoolArgs, ask: impl AsyncFnOnce(Client) -> Result<T, client::Error>) -> anyhow::Result<T> {
    let client = Client::new(&StateDir::find(target)?);
    block_on(async { ask(client).await.map_err(|error| error.into_failure().into()) })
}

/// The secret goes to the output alone, so that `weal token create x > file` keeps it; what to do with it goes beside.
fn show_made(made: &TokenMade, json: bool) -> anyhow::Result<()> {
    if json {
        return output::json(made, false);
    }
    output::print(&format!("{}\n", made.secret));
    let allowed = made.scope.map_or_else(String::new, |scope| format!(" It lets its holder {}.", allows(scope)));
    let (name, how) = (&made.name, "It is shown this once. Use: Authorization: Bearer SECRET");
    output::complain(&format!("This is the secret of `{name}`.{allowed} {how}"));
    Ok(())
}

fn list(tokens: &[TokenView], now: Time) -> String {
    let mut table = Table::new(&["TOKEN", "SCOPE", "AGE", "ENDS IN", "JOBS AT MOST"]);
    for token in tokens {
        let scope = match token.scope {
            TokenScope::Read => "read",
            TokenScope::Jobs => "jobs",
            TokenScope::All if token.unscoped => "all (made before scopes existed)",
            TokenScope::All => "all",
        };
        let ends = match token.ends {
            None => "never".to_owned(),
            Some(ends) if ends <= now => "ended".to_owned(),
            Some(ends) => span(ends.since(now).as_secs()),
        };
        table.row(vec![
            cell(&*token.name),
            cell(scope),
            cell(span(now.since(token.made).as_secs())),
            cell(ends),
            cell(most(&token.quota)),
        ]);
    }
    table.render()
}

/// What the jobs of a token may be together, in words; empty for no limit.
fn most(quota: &JobQuota) -> String {
    let limits = [
        quota.jobs.map(|jobs| format!("{jobs} jobs")),
        quota.work.map(|work| format!("{} of CPU", show_span(work.0))),
        quota.memory.map(show_size),
    ];
    limits.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Runs `weal audit`.
pub fn audit(order: &Audit, json: bool) -> anyhow::Result<()> {
    // Which of them are later is seen here.
    let asked_for = if order.since.is_some() { order.limit.max(1000) } else { order.limit };
    let path = format!("/v1/audit?limit={asked_for}");
    let since = order.since.as_deref().map(|text| values::since(text, now(), output::zone())).transpose()?;
    let mut entries: Vec<AuditEntry> = asked(&order.target, async |client| client.get(&path).await)?;
    entries.retain(|entry| since.is_none_or(|since| entry.time >= since));
    entries.drain(..entries.len().saturating_sub(order.limit as usize));
    if json {
        return output::json(&entries, false);
    }
    let mut table = Table::new(&["TIME", "WHO", "WHAT", "ANSWER"]);
    for entry in &entries {
        if entry.unlisted > 0 {
            table.row(vec![cell(""), cell(""), cell(format!("{} calls are not listed", entry.unlisted)), cell("")]);
        }
        let what = format!("{} {}", entry.method, crate::terminal::visible(&entry.path));
        table.row(vec![cell(moment(entry.time)), cell(who(&entry.who)), cell(what), cell(entry.status.to_string())]);
    }
    output::print(&table.render());
    Ok(())
}

/// Who called, in words.
pub fn who(caller: &Caller) -> String {
    match caller {
        Caller::User { uid } => format!("user {}", users::name_of(*uid)),
        Caller::Token { name, address } => format!("token {name} at {address}"),
        Caller::Unknown { address } => format!("nobody known at {address}"),
    }
}
