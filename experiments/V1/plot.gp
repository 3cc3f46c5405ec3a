# Draws the figures of V1 from the CSV beside this script: gnuplot plot.gp
set terminal svg size 800,420 dynamic
set datafile separator comma
set key outside below
set grid

set output 'figure-4.1.svg'
set title 'locality lost by the failure of one server' noenhanced
set xlabel 'servers' noenhanced
set ylabel 'lost, %' noenhanced
plot for [column=2:5] 'figure-4.1.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced
