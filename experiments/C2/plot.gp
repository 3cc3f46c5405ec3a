# Draws the figures of C2 from the CSV beside this script: gnuplot plot.gp
set terminal svg size 800,420 dynamic
set datafile separator comma
set key outside below
set grid

set output 'pairs.svg'
set title 'numbers, in the order of the table' noenhanced
set xlabel 'number' noenhanced
set ylabel 'value' noenhanced
plot for [column=2:4] 'pairs.csv' using 1:column with points title columnheader(column) noenhanced
