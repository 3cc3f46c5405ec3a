# The commands of the README. Each installs what is missing first, or says what to install.
.PHONY: demo docs test

# Without incremental compilation the first build is a sixth shorter.
export CARGO_INCREMENTAL = 0

# `--workspace` chooses the libraries' features as `make test` does, so that both share what they compile. Only these programs are built,
# and always in target/, where the demo's config names them.
demo:
	@scripts/bootstrap demo
	@env -u CARGO_TARGET_DIR cargo build --workspace --bin weal --bin weal-demo-shop --bin weal-demo-search --bin weal-demo-feed
	@scripts/demo

test:
	@scripts/bootstrap test
	@scripts/test

# The site of all documents, in target/site/html.
docs:
	@scripts/bootstrap docs
	@cargo xtask site
