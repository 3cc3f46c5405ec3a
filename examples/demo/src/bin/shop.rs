//! A shop: pages cost 8 ms of CPU and a query on a real embedded database, reports cost 40 ms. Its catalogue of a quarter of a MiB costs next to
//! nothing.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use hyper::Method;
use rusqlite::Connection;
use weal_demo::{Call, Reply, burn, serve};

static CATALOGUE: LazyLock<String> = LazyLock::new(|| "one of many things that a shop may have, with its price\n".repeat(4681));

fn main() -> anyhow::Result<()> {
    let folder = PathBuf::from(std::env::var("DATA").unwrap_or_else(|_| ".".into()));
    let path = folder.join("shop.db");
    prepare(&open(&path)?)?;
    serve(move |call| answer(call, &path).unwrap_or_else(Reply::failed))
}

/// Every instance has the same database, so each request opens it for itself and waits for its turn to write.
fn open(path: &PathBuf) -> rusqlite::Result<Connection> {
    let database = Connection::open(path)?;
    database.busy_timeout(Duration::from_secs(5))?;
    database.pragma_update(None, "journal_mode", "wal")?;
    Ok(database)
}

fn prepare(database: &Connection) -> rusqlite::Result<()> {
    database.execute_batch(
        "BEGIN IMMEDIATE;
         CREATE TABLE IF NOT EXISTS item (id INTEGER PRIMARY KEY, name TEXT NOT NULL, stock INTEGER NOT NULL);
         CREATE TABLE IF NOT EXISTS sale (id INTEGER PRIMARY KEY, item INTEGER NOT NULL REFERENCES item);
         INSERT OR IGNORE INTO item
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
             SELECT i, 'item ' || i, 1000 FROM n;
         COMMIT;",
    )
}

fn answer(call: &Call, path: &PathBuf) -> rusqlite::Result<Reply> {
    if call.path == "/catalogue" {
        return Ok(Reply::ok(CATALOGUE.as_str()));
    }
    let database = open(path)?;
    let item = i64::try_from(call.number("item", 1)).unwrap_or(1);
    Ok(match (call.path.as_str(), &call.method) {
        ("/buy", &Method::POST) => {
            database.execute("UPDATE item SET stock = stock - 1 WHERE id = ?1", [item])?;
            database.execute("INSERT INTO sale (item) VALUES (?1)", [item])?;
            burn(Duration::from_millis(4));
            Reply::ok("sold\n")
        }
        (path, _) if path.starts_with("/report") => {
            let sold: i64 = database.query_row("SELECT count(*) FROM sale", [], |row| row.get(0))?;
            burn(Duration::from_millis(40));
            Reply::ok(format!("{sold} sold\n"))
        }
        ("/", _) => {
            let (name, stock): (String, i64) =
                database.query_row("SELECT name, stock FROM item WHERE id = ?1", [item.clamp(1, 500)], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })?;
            burn(Duration::from_millis(8));
            Reply::ok(format!("{name}: {stock} in stock\n"))
        }
        _ => Reply::not_found(),
    })
}
