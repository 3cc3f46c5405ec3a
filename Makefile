# The two commands of the README. Both install what is missing first, or say what to install.
.PHONY: demo test

demo:
	@scripts/bootstrap demo
	@cargo build --bins
	@scripts/demo

test:
	@scripts/bootstrap test
	@scripts/test
