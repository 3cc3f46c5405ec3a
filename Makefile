# The two commands of the README. Both install what is missing first, or say what to install.
.PHONY: demo test

# Without incremental compilation the first build is a sixth shorter.
export CARGO_INCREMENTAL = 0

# `--workspace` chooses the libraries' features as `make test` does, so that both share what they compile. Only these programs are built.
demo:
	@scripts/bootstrap demo
	@cargo build --workspace --bin weal --bin weal-demo-shop --bin weal-demo-search --bin weal-demo-feed
	@scripts/demo

test:
	@scripts/bootstrap test
	@scripts/test
