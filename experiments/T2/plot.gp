# Draws the figures of T2 from the CSV beside this script: gnuplot plot.gp
set terminal svg size 800,420 dynamic
set datafile separator comma
set key outside below
set grid

set output 'figure-5.7.svg'
set title 'response time by initial share, relative to a whole CPU on each node' noenhanced
set xlabel 'share' noenhanced
set ylabel 'response time' noenhanced
plot for [column=2:4] 'figure-5.7.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced

set output 'figure-5.8.svg'
set title 'shares at 0.2, distributed' noenhanced
set xlabel 'exchanges' noenhanced
set ylabel 'share' noenhanced
plot for [column=2:5] 'figure-5.8.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced
