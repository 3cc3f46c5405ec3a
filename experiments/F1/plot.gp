# Draws the figures of F1 from the CSV beside this script: gnuplot plot.gp
set terminal svg size 800,420 dynamic
set datafile separator comma
set key outside below
set grid

set output 'worse-off.svg'
set title 'lower utility of both workloads' noenhanced
set xlabel 'time, s' noenhanced
set ylabel 'utility' noenhanced
plot for [column=2:5] 'worse-off.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced
