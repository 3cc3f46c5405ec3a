# Draws the figures of C10 from the CSV beside this script: gnuplot plot.gp
set terminal svg size 800,420 dynamic
set datafile separator comma
set key outside below
set grid

set output 'figure-5.25-5.27.svg'
set title 'CPU of each workload (seed 1)' noenhanced
set xlabel 'time, s' noenhanced
set ylabel 'MHz' noenhanced
plot for [column=2:7] 'figure-5.25-5.27.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced

set output 'figure-5.26.svg'
set title 'utility of each workload (seed 1)' noenhanced
set xlabel 'time, s' noenhanced
set ylabel 'utility' noenhanced
plot for [column=2:7] 'figure-5.26.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced
