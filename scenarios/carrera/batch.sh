#!/bin/bash
# batch.sh WORK PROGRAM [CORES]: runs a program again and again until it has used WORK seconds of CPU, as the thesis batched programs to durations
# (Carrera 5.7). It goes on from where an earlier run of the same job was ended: after each round it writes down what it has used. With CORES, it
# pauses after each round, so that it uses no more than that.
set -u
work=$1 program=$2 cores=${3:-0}
cd "${DATA:-.}" || exit 1
export TMPDIR=/tmp MAGICK_THREAD_LIMIT=1
before=$(cat used 2>/dev/null || echo 0)

# CPU seconds of this run and its children, into `now`. A subshell has times of its own.
look() {
    times >times.txt
    now=$(awk '{ for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); sum += 60 * t[1] + t[2] } } END { print sum }' times.txt)
}

# Letters of proteins; the same ones each time.
proteins() {
    awk -v count="$1" -v seed="$2" 'BEGIN { srand(seed); a = "ACDEFGHIKLMNPQRSTVWY"
        for (n = 1; n <= count; n++) { print ">p" n; s = ""
            for (i = 0; i < 300; i++) s = s substr(a, 1 + int(20 * rand()), 1)
            print s } }'
}

prepare() {
    case $program in
    blast)
        proteins 400 1 >library.fa && proteins 3 2 >query.fa
        makeblastdb -in library.fa -dbtype prot -out library >/dev/null
        ;;
    povray)
        cat >scene.pov <<'SCENE'
camera { location <0, 2, -6> look_at <0, 0, 0> }
light_source { <5, 8, -6> rgb 1 }
plane { y, -1 pigment { checker rgb 0.9, rgb 0.2 } finish { reflection 0.3 } }
sphere { 0, 1 pigment { rgb <0.8, 0.2, 0.1> } finish { phong 0.9 reflection 0.4 } }
SCENE
        ;;
    esac
}

round() {
    case $program in
    blast) blastp -query query.fa -db library -num_threads 2 -evalue 1000 -out found.txt ;;
    imagemagick) convert -seed 1 -size 240x240 plasma:fractal -blur 0x6 -paint 3 picture.png ;;
    povray) povray +Iscene.pov +Oscene.png +W320 +H240 +A +WT1 -D -GA >/dev/null 2>&1 ;;
    index) proteins 300 3 | fold -w 3 | sort | uniq -c | sort -rn | xz -6 >index.xz ;;
    *) echo "no program $program" >&2 && exit 2 ;;
    esac
}

[ -e prepared ] || { prepare && touch prepared; } || exit 1
while :; do
    begun=$(date +%s.%N)
    round || exit 1
    look
    awk -v before="$before" -v now="$now" 'BEGIN { print before + now }' >used.new && mv used.new used
    awk -v used="$(cat used)" -v work="$work" 'BEGIN { print (used < work) ? used / work : 1 }' >"$WEAL_PROGRESS"
    awk -v used="$(cat used)" -v work="$work" 'BEGIN { exit used < work }' && exit 0
    if [ "$cores" != 0 ]; then
        sleep "$(awk -v used="$now" -v last="${last:-0}" -v cores="$cores" -v begun="$begun" -v end="$(date +%s.%N)" \
            'BEGIN { rest = (used - last) / cores - (end - begun); print (rest > 0) ? rest : 0 }')"
        last=$now
    fi
done
