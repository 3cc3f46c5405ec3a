# Draws the figures of A1 from the CSV beside this script: gnuplot plot.gp
set terminal svg size 800,420 dynamic
set datafile separator comma
set key outside below
set grid

set output 'figure-11.svg'
set title 'response time of what arrives' noenhanced
set xlabel 'time, s' noenhanced
set ylabel 's' noenhanced
plot for [column=2:5] 'figure-11.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced
