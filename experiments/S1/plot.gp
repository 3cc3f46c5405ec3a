# Draws the figures of S1 from the CSV beside this script: gnuplot plot.gp
set terminal svg size 800,420 dynamic
set datafile separator comma
set key outside below
set grid

set output 'figure-18.svg'
set title 'mean response time by the base model' noenhanced
set xlabel 'requests per second' noenhanced
set ylabel 'ms' noenhanced
plot for [column=2:6] 'figure-18.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced
