//! A stock broker's page in two variants, after Pacifici's TradeA and TradeB (2005, section 4):
//!
//! | variant | queries | CPU | other waiting |
//! | --- | --- | --- | --- |
//! | `direct` | 1 | 4.6 ms | 150 ms |
//! | `layered` | 3 | 19 ms | 280 ms |
//!
//! Run as `weal-trade direct --port PORT`; the database is where `DB_ADDR` says.

use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, bail};
use postgres::{Client, NoTls};
use weal_demo::{Call, Reply, burn, serve};

/// What a request of a variant costs.
#[derive(Debug, Clone, Copy)]
struct Variant {
    queries: u32,
    cpu: Duration,
    waiting: Duration,
}

const DIRECT: Variant = Variant { queries: 1, cpu: Duration::from_micros(4600), waiting: Duration::from_millis(150) };
const LAYERED: Variant = Variant { queries: 3, cpu: Duration::from_millis(19), waiting: Duration::from_millis(280) };

fn main() -> anyhow::Result<()> {
    let variant = match std::env::args().nth(1).as_deref() {
        Some("direct") => DIRECT,
        Some("layered") => LAYERED,
        _ => bail!("usage: weal-trade direct|layered --port PORT"),
    };
    let address = std::env::var("DB_ADDR").context("DB_ADDR says where PostgreSQL is: put `needs = [\"db\"]` into the config")?;
    let (host, port) = address.split_once(':').context("DB_ADDR is HOST:PORT")?;
    let database = Database {
        settings: format!("host={host} port={port} user=postgres dbname=postgres connect_timeout=5"),
        idle: Mutex::default(),
    };
    database.prepare()?;
    serve(move |call| page(call, variant, &database).unwrap_or_else(Reply::failed))
}

fn page(call: &Call, variant: Variant, database: &Database) -> anyhow::Result<Reply> {
    if call.path != "/" {
        return Ok(Reply::not_found());
    }
    let account = i32::try_from(call.number("account", 1) % 500)?;
    let mut worth = 0;
    database.with(|client| {
        for query in 0..variant.queries {
            let row = client.query_one("SELECT price FROM quote WHERE id = $1", &[&((account + query.cast_signed()) % 500)])?;
            worth += row.get::<_, i32>(0);
        }
        Ok(())
    })?;
    burn(variant.cpu);
    std::thread::sleep(variant.waiting);
    Ok(Reply::ok(format!("account {account} is worth {worth}\n")))
}

/// Idle connections to PostgreSQL.
struct Database {
    settings: String,
    idle: Mutex<Vec<Client>>,
}

impl Database {
    /// Makes the quotes if nobody has yet; two instances that start at once wait for each other on the lock.
    fn prepare(&self) -> anyhow::Result<()> {
        self.with(|client| {
            client.batch_execute(
                "BEGIN;
                 SELECT pg_advisory_xact_lock(1);
                 CREATE TABLE IF NOT EXISTS quote (id integer PRIMARY KEY, price integer NOT NULL);
                 INSERT INTO quote SELECT n, 10 + n FROM generate_series(0, 499) AS n ON CONFLICT DO NOTHING;
                 COMMIT;",
            )?;
            Ok(())
        })
    }

    /// Runs `ask` on an idle connection, or on a new one; one that failed is not used again.
    fn with(&self, ask: impl FnOnce(&mut Client) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let kept = self.idle.lock().ok().and_then(|mut idle| idle.pop()).filter(|client| !client.is_closed());
        let mut client = match kept {
            Some(client) => client,
            None => Client::connect(&self.settings, NoTls).context("failed to reach the database")?,
        };
        ask(&mut client)?;
        if let Ok(mut idle) = self.idle.lock() {
            idle.push(client);
        }
        Ok(())
    }
}
