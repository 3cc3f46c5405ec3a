# Draws the figures of C13 from the CSV beside this script: gnuplot plot.gp
set terminal svg size 800,420 dynamic
set datafile separator comma
set key outside below
set grid

set output 'figure-5.11.svg'
set title 'lowest utility by cycle and instances to a node (seed 1)' noenhanced
set xlabel 'cycle' noenhanced
set ylabel 'utility' noenhanced
plot for [column=2:7] 'figure-5.11.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced
