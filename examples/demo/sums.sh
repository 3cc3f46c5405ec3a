#!/bin/sh
# Half a minute of arithmetic that says how far it is: `weal submit -f examples/demo/weal.toml examples/demo/sums.sh`.
#weal --name sums --done-by 3m --memory 32MiB
exec awk 'BEGIN {
    file = ENVIRON["WEAL_PROGRESS"]
    for (percent = 1; percent <= 100; percent++) {
        for (i = 0; i < 3000000; i++) sum += i % 7
        print percent "%" > file
        close(file)
    }
    print sum
}'
